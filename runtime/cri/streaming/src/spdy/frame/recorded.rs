//! What the client of Kubernetes (client-go of July 2026, with its SPDY) and its own server have said to one another, byte for byte.

use super::tests::read;
use super::*;

macro_rules! recorded {
    ($name:literal) => {
        read(include_bytes!(concat!("recorded/", $name, ".bin")), 7).expect("frames")
    };
}

fn opened(frames: &[Frame]) -> Vec<(u32, Vec<(&str, &str)>)> {
    let opened = frames.iter().filter_map(|frame| match frame {
        Frame::SynStream { stream, fin: Fin::No, unidirectional: false, headers } => {
            Some((stream.0, headers))
        }
        _ => None,
    });
    opened
        .map(|(stream, headers)| {
            let mut fields: Vec<_> =
                headers.fields().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            fields.sort_unstable();
            (stream, fields)
        })
        .collect()
}

fn data(frames: &[Frame], wanted: u32) -> (String, Fin) {
    let (mut text, mut end) = (String::new(), Fin::No);
    for frame in frames {
        if let Frame::Data { stream: StreamId(stream), fin, bytes } = frame
            && *stream == wanted
        {
            text += std::str::from_utf8(bytes).expect("text");
            end = *fin;
        }
    }
    (text, end)
}

#[test]
fn a_command_with_input() {
    let client = recorded!("exec-client");
    let kinds = [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr")];
    assert_eq!(opened(&client), kinds.map(|(stream, kind)| (stream, vec![("streamtype", kind)])));
    assert_eq!(data(&client, 3), ("hello".into(), Fin::Yes));
    let server = recorded!("exec-server");
    let replies = |frame: &&Frame| matches!(frame, Frame::SynReply { .. });
    assert_eq!(server.iter().filter(replies).count(), 4);
    assert_eq!(data(&server, 1), (r#"{"status":"Success"}"#.into(), Fin::No));
    assert_eq!(server.last(), Some(&Frame::GoAway { last: StreamId(7), status: 0 }));
}

#[test]
fn a_terminal() {
    let client = recorded!("tty-client");
    assert_eq!(opened(&client)[3], (7, vec![("streamtype", "resize")]));
    assert_eq!(data(&client, 7), ("{\"Width\":120,\"Height\":40}\n".into(), Fin::No));
    assert_eq!(data(&recorded!("tty-server"), 5), ("hello\n".into(), Fin::No));
}

#[test]
fn two_connections_to_a_port() {
    let client = recorded!("portforward-client");
    let fields = |kind, request| vec![("port", "80"), ("requestid", request), ("streamtype", kind)];
    assert_eq!(
        opened(&client),
        [
            (1, fields("error", "0")),
            (3, fields("error", "1")),
            (5, fields("data", "0")),
            (7, fields("data", "1"))
        ]
    );
    for (stream, text, end) in
        [(1, "", Fin::Yes), (3, "", Fin::Yes), (5, "hello", Fin::No), (7, "hello", Fin::No)]
    {
        assert_eq!(data(&client, stream), (text.into(), end), "stream {stream}");
    }
    let reset = Frame::Reset { stream: StreamId(7), code: ResetCode::CANCEL };
    assert_eq!(client.last(), Some(&reset));
    assert_eq!(data(&recorded!("portforward-server"), 7), ("hello".into(), Fin::Yes));
}
