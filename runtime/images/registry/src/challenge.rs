//! `WWW-Authenticate`: what a registry asks for (RFC 9110, section 11.6.1; RFC 6750). Pure.

/// The longest header that is looked at, in bytes.
const HEADER_LENGTH_MAX: usize = 8 << 10;

/// What a registry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password.
    Basic,
    /// A token from somewhere.
    Bearer {
        /// Where to get it.
        realm: String,
        /// Who it is for.
        service: Option<String>,
        /// What it has to allow, separated by spaces.
        scope: Option<String>,
    },
}

/// All challenges of one header that are understood, in its order. What is not understood is passed over.
pub fn parse(header: &str) -> Vec<Challenge> {
    let mut rest = header.get(..HEADER_LENGTH_MAX).unwrap_or(header);
    let mut challenges = Vec::new();
    let mut scheme = None;
    let mut parameters = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let (word, after) = split_token(rest);
        if word.is_empty() {
            // Neither a scheme nor a parameter: go past one character, or end.
            match rest.chars().next() {
                Some(c) => rest = &rest[c.len_utf8()..],
                None => break,
            }
            continue;
        }
        let value = after.trim_start_matches([' ', '\t']).strip_prefix('=');
        match value {
            Some(value) => {
                let (text, after) = split_value(value.trim_start_matches([' ', '\t']));
                parameters.push((word.to_ascii_lowercase(), text));
                rest = after;
            }
            None => {
                challenges.extend(finish(scheme.replace(word), std::mem::take(&mut parameters)));
                rest = after;
            }
        }
    }
    challenges.extend(finish(scheme, parameters));
    challenges
}

fn finish(scheme: Option<&str>, mut parameters: Vec<(String, String)>) -> Option<Challenge> {
    let scheme = scheme?.to_ascii_lowercase();
    let mut take = |name: &str| {
        let at = parameters.iter().position(|(key, _)| key == name)?;
        Some(parameters.swap_remove(at).1)
    };
    match scheme.as_str() {
        "basic" => Some(Challenge::Basic),
        "bearer" => Some(Challenge::Bearer {
            realm: take("realm")?,
            service: take("service").filter(|service| !service.is_empty()),
            scope: take("scope").filter(|scope| !scope.is_empty()),
        }),
        _ => None,
    }
}

fn split_token(text: &str) -> (&str, &str) {
    let word = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
    text.split_at(text.find(|c| !word(c)).unwrap_or(text.len()))
}

/// A quoted text, with its escapes resolved, or a bare one up to the next comma.
fn split_value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let (value, rest) = text.split_at(text.find(',').unwrap_or(text.len()));
        return (value.trim_end().to_owned(), rest);
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                value.push(c);
                escaped = false;
            }
            '\\' => escaped = true,
            '"' => return (value, &quoted[at + 1..]),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rstest::rstest;

    fn bearer(realm: &str, service: Option<&str>, scope: Option<&str>) -> Challenge {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Challenge::Bearer { realm: realm.to_owned(), service: owned(service), scope: owned(scope) }
    }

    #[rstest]
    #[case("Basic realm=\"x\"", vec![Challenge::Basic])]
    #[case("basic", vec![Challenge::Basic])]
    #[case(
        "Bearer realm=\"https://auth.example/token\",service=\"r.example\",scope=\"repository:a/b:pull,push\"",
        vec![bearer("https://auth.example/token", Some("r.example"), Some("repository:a/b:pull,push"))]
    )]
    #[case("BEARER Realm = \"x\" , Service=y", vec![bearer("x", Some("y"), None)])]
    #[case("Bearer realm=\"a\\\"b\"", vec![bearer("a\"b", None, None)])]
    #[case("Negotiate, Basic realm=x, Bearer realm=y", vec![Challenge::Basic, bearer("y", None, None)])]
    #[case("Negotiate abc==, Basic realm=x", vec![Challenge::Basic])]
    #[case("Bearer service=\"no realm\"", vec![])]
    #[case("Bearer realm=\"unterminated", vec![bearer("unterminated", None, None)])]
    #[case("", vec![])]
    fn reads(#[case] header: &str, #[case] expected: Vec<Challenge>) {
        assert_eq!(parse(header), expected);
    }

    proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in any::<String>()) {
            parse(&text);
        }

        #[test]
        fn anything_like_a_header_is_read_to_its_end(text in "[Bbearsic =,\"\\\\x]{0,80}") {
            parse(&text);
        }
    }
}
