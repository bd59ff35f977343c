//! A JSON value as an indented text for people: `inspect` without `--json`.

use serde_json::Value;

use crate::table::printable;

/// Spaces by which what belongs to a key is moved in.
const INDENT: usize = 2;

/// The value as lines of `key: value`. What is not there, or is empty, is left out.
pub fn text(value: &Value) -> String {
    let mut lines = String::new();
    write(value, 0, &mut lines);
    lines
}

fn write(value: &Value, depth: usize, lines: &mut String) {
    let margin = " ".repeat(depth * INDENT);
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter().filter(|(_, field)| !is_empty(field)) {
                lines.push_str(&format!("{margin}{}:", printable(key)));
                write_under_key(field, depth, lines);
            }
        }
        Value::Array(items) => {
            for item in items {
                match inline(item) {
                    Some(item) => lines.push_str(&format!("{margin}- {item}\n")),
                    None => {
                        // The first line of the item stands behind the dash.
                        let mut block = String::new();
                        write(item, depth + 1, &mut block);
                        let first = (depth + 1) * INDENT;
                        lines.push_str(&format!("{margin}- {}", block.get(first..).unwrap_or_default()));
                    }
                }
            }
        }
        _ => lines.push_str(&format!("{margin}{}\n", inline(value).unwrap_or_default())),
    }
}

fn write_under_key(value: &Value, depth: usize, lines: &mut String) {
    match inline(value) {
        Some(text) => lines.push_str(&format!(" {text}\n")),
        None => {
            lines.push('\n');
            write(value, depth + 1, lines);
        }
    }
}

/// A value that fits behind its key: a plain one, or a list of words that nobody could take for something
/// else.
fn inline(value: &Value) -> Option<String> {
    let plain_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || "-_./=:@%+".contains(c));
    match value {
        Value::Null => Some("-".to_owned()),
        Value::Bool(yes) => Some(if *yes { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => Some(printable(text)),
        Value::Array(items) => {
            let words: Option<Vec<String>> = items
                .iter()
                .map(|item| match item {
                    Value::String(text) if plain_word(text) => Some(text.clone()),
                    Value::String(text) => Some(format!("{text:?}")),
                    Value::Number(number) => Some(number.to_string()),
                    _ => None,
                })
                .collect();
            words.map(|words| printable(&words.join(" ")))
        }
        Value::Object(_) => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.values().all(is_empty),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shows_what_is_there() {
        let value = json!({
            "name": "web",
            "pid": null,
            "labels": {},
            "command": ["sh", "-c", "echo a; exit"],
            "exit": { "code": 3, "oom_killed": false },
            "mounts": [{ "source": "/a", "target": "/b" }, { "source": "/c" }],
        });
        let expected = "name: web\n\
                        command: sh -c \"echo a; exit\"\n\
                        exit:\n\
                        \x20 code: 3\n\
                        \x20 oom_killed: no\n\
                        mounts:\n\
                        \x20 - source: /a\n\
                        \x20   target: /b\n\
                        \x20 - source: /c\n";
        assert_eq!(text(&value), expected);
    }

    #[test]
    fn hostile_text_is_shown_escaped() {
        assert_eq!(text(&json!({"a\u{1b}": "x\ny"})), "a\\u{1b}: x\\ny\n");
    }
}
