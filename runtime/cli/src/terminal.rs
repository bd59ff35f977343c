//! Our terminal: its size, and its raw mode, which is always taken back. The keys that leave a session.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Mutex, Once, PoisonError};

use mainstay_messages::spec::WindowSize;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The size that a terminal gets when we have none ourselves.
pub const WINDOW_DEFAULT: WindowSize = WindowSize { rows: 24, columns: 80 };
/// Ctrl-P, then Ctrl-Q.
const DETACH_KEYS: [u8; 2] = [0x10, 0x11];

/// How the terminal was before it was made raw; none while it is not. Process-wide, as the terminal itself
/// is.
static COOKED: Mutex<Option<Termios>> = Mutex::new(None);
static PANIC_HOOK: Once = Once::new();

/// Raw mode of the terminal on standard input. Dropped, the terminal is as it was; a panic does the same
/// before its message is printed.
#[derive(Debug)]
pub struct RawMode {
    _private: (),
}

/// Whether a session can be left by keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DetachKeys {
    /// It can: Ctrl-P Ctrl-Q.
    Watched,
    /// It cannot: all keys are input.
    Ignored,
}

/// What became of a piece of input that was looked through for [`DetachKeys`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Typed {
    /// Input for the process; it may be empty.
    Input(Vec<u8>),
    /// What came before the keys, and then the keys.
    Detach(Vec<u8>),
}

/// Looks for the keys in what is typed, also where they come in two pieces.
#[derive(Debug)]
pub struct KeyWatch {
    keys: DetachKeys,
    matched: usize,
}

impl RawMode {
    /// Makes the terminal raw; none when standard input is not a terminal.
    pub fn enter() -> io::Result<Option<Self>> {
        let stdin = rustix::stdio::stdin();
        if !isatty(stdin) {
            return Ok(None);
        }
        PANIC_HOOK.call_once(|| {
            let message = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                restore(stdin);
                message(panic);
            }));
        });
        let cooked = tcgetattr(stdin)?;
        let mut raw = cooked.clone();
        raw.make_raw();
        COOKED.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(cooked);
        tcsetattr(stdin, OptionalActions::Drain, &raw)?;
        Ok(Some(Self { _private: () }))
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        restore(rustix::stdio::stdin());
    }
}

fn restore(stdin: BorrowedFd<'_>) {
    if let Some(cooked) = COOKED.lock().unwrap_or_else(PoisonError::into_inner).take() {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(stdin, OptionalActions::Drain, &cooked);
    }
}

/// Whether standard input is a terminal.
pub fn on_terminal() -> bool {
    isatty(rustix::stdio::stdin())
}

/// The size of our terminal; none when we have none, or it does not know.
pub fn window() -> Option<WindowSize> {
    [rustix::stdio::stdout(), rustix::stdio::stdin(), rustix::stdio::stderr()].into_iter().find_map(|fd| {
        let size = tcgetwinsize(fd).ok()?;
        (size.ws_row > 0 && size.ws_col > 0).then_some(WindowSize { rows: size.ws_row, columns: size.ws_col })
    })
}

impl KeyWatch {
    /// A watch that has seen nothing yet.
    pub fn new(keys: DetachKeys) -> Self {
        Self { keys, matched: 0 }
    }

    /// Looks through a piece of input. The beginning of the keys is held back until it is known not to be
    /// one.
    pub fn look(&mut self, piece: &[u8]) -> Typed {
        if self.keys == DetachKeys::Ignored {
            return Typed::Input(piece.to_vec());
        }
        let mut input = Vec::with_capacity(piece.len() + DETACH_KEYS.len());
        for byte in piece {
            if *byte == DETACH_KEYS[self.matched] {
                self.matched += 1;
                if self.matched == DETACH_KEYS.len() {
                    self.matched = 0;
                    return Typed::Detach(input);
                }
                continue;
            }
            input.extend_from_slice(&DETACH_KEYS[..self.matched]);
            self.matched = usize::from(*byte == DETACH_KEYS[0]);
            if self.matched == 0 {
                input.push(*byte);
            }
        }
        Typed::Input(input)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("ab", Typed::Input(b"ab".to_vec()))]
    #[case("a\x10\x11b", Typed::Detach(b"a".to_vec()))]
    #[case("a\x10|\x11", Typed::Detach(b"a".to_vec()))]
    #[case("\x10|x", Typed::Input(b"\x10x".to_vec()))]
    #[case("\x10\x10\x11", Typed::Detach(b"\x10".to_vec()))]
    #[case("\x11\x10a", Typed::Input(b"\x11\x10a".to_vec()))]
    fn keys_are_found_and_nothing_else_is_lost(#[case] pieces: &str, #[case] expected: Typed) {
        let mut watch = KeyWatch::new(DetachKeys::Watched);
        let mut all = Vec::new();
        for piece in pieces.split('|') {
            match watch.look(piece.as_bytes()) {
                Typed::Input(input) => all.extend(input),
                Typed::Detach(input) => {
                    all.extend(input);
                    assert_eq!(Typed::Detach(all), expected);
                    return;
                }
            }
        }
        assert_eq!(Typed::Input(all), expected);
    }

    #[test]
    fn ignored_keys_are_input() {
        let typed = KeyWatch::new(DetachKeys::Ignored).look(b"\x10\x11");
        assert_eq!(typed, Typed::Input(b"\x10\x11".to_vec()));
    }
}
