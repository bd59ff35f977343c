//! Names of entries, as strangers write them.

use crate::settings::Limits;
use crate::unpack::Fault;

/// The longest name of one file (NAME_MAX).
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The components of a name, from the root of the layer. A slash at the beginning means that root too, as GNU tar and
/// Docker have it; `..` is refused.
pub(crate) fn components<'a>(name: &'a [u8], limits: &Limits) -> Result<Vec<&'a [u8]>, Fault> {
    if name.len() as u64 > limits.path_bytes_max {
        let max = limits.path_bytes_max;
        return Err(Fault::Limit { what: "bytes in a path", setting: "path_bytes_max", max });
    }
    let mut components = Vec::new();
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return Err(Fault::Refused("names must not have \"..\" in them".to_owned())),
            _ if component.contains(&0) => {
                return Err(Fault::Refused("names must not have a zero byte in them".to_owned()));
            }
            _ if component.len() > NAME_BYTES_MAX => {
                let problem = format!("a component is longer than {NAME_BYTES_MAX} bytes");
                return Err(Fault::Refused(problem));
            }
            _ => components.push(component),
        }
    }
    if components.len() as u64 > limits.depth_max {
        return Err(Fault::Limit {
            what: "directories above one another",
            setting: "depth_max",
            max: limits.depth_max,
        });
    }
    Ok(components)
}

/// A path with one more component.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    let mut joined = Vec::with_capacity(path.len() + 1 + name.len());
    joined.extend_from_slice(path);
    if !path.is_empty() {
        joined.push(b'/');
    }
    joined.extend_from_slice(name);
    joined
}

/// The path without its last component; empty for the root and what is in it.
pub(crate) fn parent(path: &[u8]) -> &[u8] {
    path.iter().rposition(|byte| *byte == b'/').map_or(b"", |slash| &path[..slash])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_start_at_the_root_of_the_layer_and_stay_in_it() {
        let limits = Limits { depth_max: 4, path_bytes_max: 300, ..Limits::default() };
        let of = |name: &str| components(name.as_bytes(), &limits).map(|found| found.join(&b'/'));
        assert_eq!(of("./a//b/").expect("good"), b"a/b");
        assert_eq!(of("/etc/passwd").expect("good"), b"etc/passwd");
        assert_eq!(of("./").expect("good"), b"");
        for bad in ["../a", "a/../b", "a/..", "a\0b", &"x".repeat(256)] {
            assert!(matches!(of(bad), Err(Fault::Refused(_))), "{bad:?}");
        }
        assert!(matches!(of("a/b/c/d/e"), Err(Fault::Limit { setting: "depth_max", .. })));
        assert!(matches!(of(&"a/".repeat(200)), Err(Fault::Limit { setting: "path_bytes_max", .. })));
        assert_eq!(join(b"", b"a"), b"a");
        assert_eq!(parent(b"a/b"), b"a");
        assert_eq!(parent(b"a"), b"");
    }
}
