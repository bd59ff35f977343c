//! Frames: no panic, no more kept than a control frame may have, and what was read is written so that it is read the same.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use mainstay_cri_streaming::spdy::frame::{
    CONTROL_FRAME_BYTES_MAX, DATA_PIECE_BYTES_MAX, Decoder, Encoder, Frame,
};

fuzz_target!(|bytes: &[u8]| {
    let (mut decoder, mut input) = (Decoder::default(), BytesMut::new());
    let (mut encoder, mut written, mut frames) = (Encoder::default(), BytesMut::new(), Vec::new());
    'all: for piece in bytes.chunks(97) {
        input.extend_from_slice(piece);
        loop {
            match decoder.next(&mut input) {
                Ok(Some(frame)) => {
                    if let Frame::Data { bytes, .. } = &frame {
                        assert!(bytes.len() <= DATA_PIECE_BYTES_MAX);
                    }
                    encoder.write(&frame, &mut written);
                    frames.push(frame);
                }
                Ok(None) => break,
                Err(_) => break 'all,
            }
        }
        assert!(input.len() < CONTROL_FRAME_BYTES_MAX + 8);
    }
    let mut again = Decoder::default();
    for frame in frames {
        assert_eq!(again.next(&mut written).expect("what is written can be read"), Some(frame));
    }
});
