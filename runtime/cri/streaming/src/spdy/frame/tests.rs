use flate2::{Compress, Compression, FlushCompress};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::dictionary::dictionary;
use super::super::headers::HEADER_BLOCK_BYTES_MAX;
use super::*;

fn frames() -> impl Strategy<Value = Frame> {
    let stream = (1u32..0x7fff_ffff).prop_map(StreamId);
    let fin = prop_oneof![Just(Fin::Yes), Just(Fin::No)];
    let headers = vec(("[a-z]{1,12}", "[ -~]{0,40}"), 0..6).prop_map(|mut fields| {
        fields.sort();
        fields.dedup_by(|one, other| one.0 == other.0);
        Headers::new(fields)
    });
    prop_oneof![
        (stream.clone(), fin.clone(), any::<bool>(), headers.clone()).prop_map(
            |(stream, fin, unidirectional, headers)| Frame::SynStream {
                stream,
                fin,
                unidirectional,
                headers
            }
        ),
        (stream.clone(), fin.clone(), headers.clone()).prop_map(|(stream, fin, headers)| Frame::SynReply {
            stream,
            fin,
            headers
        }),
        (stream.clone(), fin.clone(), headers).prop_map(|(stream, fin, headers)| Frame::Headers {
            stream,
            fin,
            headers
        }),
        (stream.clone(), any::<u32>())
            .prop_map(|(stream, code)| Frame::Reset { stream, code: ResetCode(code) }),
        vec((0u32..0x00ff_ffff, any::<u32>()), 0..4).prop_map(Frame::Settings),
        any::<u32>().prop_map(Frame::Ping),
        (stream.clone(), any::<u32>()).prop_map(|(last, status)| Frame::GoAway { last, status }),
        (stream.clone(), 0u32..0x7fff_ffff).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        (stream, fin, vec(any::<u8>(), 0..70_000)).prop_map(|(stream, fin, bytes)| Frame::Data {
            stream,
            fin,
            bytes: bytes.into()
        }),
    ]
}

/// What a decoder makes of bytes that come in pieces, with the pieces of each frame with data joined.
pub(super) fn read(bytes: &[u8], piece: usize) -> Result<Vec<Frame>, FrameError> {
    let (mut decoder, mut input, mut found) = (Decoder::default(), BytesMut::new(), Vec::new());
    let mut unfinished = None;
    for piece in bytes.chunks(piece.max(1)) {
        input.extend_from_slice(piece);
        while let Some(frame) = decoder.next(&mut input)? {
            let Frame::Data { stream, fin, bytes } = frame else {
                found.push(frame);
                continue;
            };
            assert!(bytes.len() <= DATA_PIECE_BYTES_MAX);
            let mut all: Vec<u8> = unfinished.take().unwrap_or_default();
            all.extend_from_slice(&bytes);
            if decoder.data.is_some() {
                assert_eq!(fin, Fin::No, "only the last piece ends the stream");
                unfinished = Some(all);
            } else {
                found.push(Frame::Data { stream, fin, bytes: all.into() });
            }
        }
        // What is kept is a control frame that is not complete, and never more than one may have.
        assert!(input.len() < HEAD_BYTES + CONTROL_FRAME_BYTES_MAX);
    }
    Ok(found)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read(frames in vec(frames(), 0..8), piece in 1usize..9_000) {
        let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
        for frame in &frames {
            encoder.write(frame, &mut bytes);
        }
        prop_assert_eq!(read(&bytes, piece), Ok(frames));
    }

    #[test]
    fn no_bytes_do_harm(bytes in vec(any::<u8>(), 0..4_000), piece in 1usize..500) {
        let _ = read(&bytes, piece);
    }

    /// Bytes that look like frames get further than those that do not.
    #[test]
    fn no_frames_do_harm(bodies in vec((0u16..12, any::<u8>(), vec(any::<u8>(), 0..80)), 0..12), piece in 1usize..500) {
        let mut bytes = BytesMut::new();
        for (kind, flags, body) in bodies {
            bytes.put_u32(0x8003_0000 | u32::from(kind));
            bytes.put_u32((u32::from(flags) << 24) | body.len() as u32);
            bytes.extend_from_slice(&body);
        }
        let _ = read(&bytes, piece);
    }
}

fn syn_stream(block: &[u8]) -> BytesMut {
    let mut bytes = BytesMut::new();
    bytes.put_u32(0x8003_0001);
    bytes.put_u32(10 + block.len() as u32);
    bytes.put_u32(1);
    bytes.put_bytes(0, 6);
    bytes.extend_from_slice(block);
    bytes
}

fn deflated(block: &[u8]) -> Vec<u8> {
    let mut deflate = Compress::new(Compression::best(), true);
    deflate.set_dictionary(&dictionary()).expect("taken");
    let mut out = Vec::with_capacity(block.len() + 1_024);
    deflate.compress_vec(block, &mut out, FlushCompress::Sync).expect("deflated");
    out
}

/// Sixteen megabytes of the same byte deflate to sixteen kilobytes, which is a frame like any other.
#[test]
fn a_header_block_that_inflates_without_end_is_refused() {
    let mut block = Vec::from(1u32.to_be_bytes());
    block.extend_from_slice(&1u32.to_be_bytes());
    block.push(b'a');
    block.extend_from_slice(&(10_000_000u32).to_be_bytes());
    block.resize(10_000_000, b'x');
    let bomb = deflated(&block);
    assert!(bomb.len() < CONTROL_FRAME_BYTES_MAX);
    let read = read(&syn_stream(&bomb), 65_536);
    assert_eq!(read, Err(FrameError::HeaderBlock { reason: "it is too long" }));
    let honest = vec![0; HEADER_BLOCK_BYTES_MAX - 4];
    let mut block = Vec::from(1u32.to_be_bytes());
    block.extend_from_slice(&honest);
    let long = super::tests::read(&syn_stream(&deflated(&block)), 65_536);
    assert_eq!(long, Err(FrameError::HeaderName { name: String::new() }), "a long one is looked at");
}

#[test]
fn frames_that_break_a_rule_are_told_apart() {
    let of = |bytes: &[u8]| read(bytes, 65_536);
    assert_eq!(of(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]), Err(FrameError::Version { version: 2 }));
    assert_eq!(of(&[0x80, 3, 0, 6, 0, 1, 0, 0]), Err(FrameError::TooLong { length: 65_536 }));
    assert_eq!(of(&[0x80, 3, 0, 6, 0, 0, 0, 0]), Err(FrameError::Length { kind: 6, length: 0 }));
    assert_eq!(of(&[0, 0, 0, 0, 0, 0, 0, 0]), Err(FrameError::StreamZero));
    assert_eq!(of(&[0x80, 3, 0, 10, 0, 0, 0, 1, 7]), Ok(Vec::new()), "what nobody knows is skipped");
    assert_eq!(of(&syn_stream(b"no zlib")), Err(FrameError::Inflate));
    let huge = deflated(&u32::MAX.to_be_bytes());
    assert_eq!(of(&syn_stream(&huge)), Err(FrameError::HeaderFields { count: u32::MAX as usize }));
    let twice = Headers::new([("a", "1"), ("a", "2")]);
    let (mut encoder, mut bytes) = (Encoder::default(), BytesMut::new());
    encoder.write(&Frame::SynReply { stream: StreamId(1), fin: Fin::No, headers: twice }, &mut bytes);
    assert_eq!(of(&bytes), Err(FrameError::HeaderTwice { name: "a".into() }));
}
