use std::time::Duration;

use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Far longer than anything here takes, in milliseconds.
const PATIENCE_MS: u64 = 60_000;

fn on_tokio<T>(future: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(async {
        tokio::time::timeout(Duration::from_millis(PATIENCE_MS), future).await.expect("an end")
    })
}

fn pair() -> ((Mux, Channels), (Mux, Channels)) {
    let (a, b) = UnixStream::pair().expect("a pair");
    (Mux::new(a), Mux::new(b))
}

fn with_raw_peer() -> ((Mux, Channels), UnixStream) {
    let (a, b) = UnixStream::pair().expect("a pair");
    (Mux::new(a), b)
}

/// Peers in Go read a message in two steps, each of which must be one frame: see the head of the module.
#[test]
fn each_write_is_one_frame_of_its_own() {
    on_tokio(async {
        let ((_mux, mut channels), mut peer) = with_raw_peer();
        channels.plugin.write_all(b"abc").await.expect("written");
        channels.runtime.write_all(&[7; 4_096]).await.expect("written");
        channels.runtime.write_all(&[]).await.expect("written");
        channels.plugin.write_all(&vec![8; 100_000]).await.expect("written");
        let mut expected = vec![0, 0, 0, 1, 0, 0, 0, 3, b'a', b'b', b'c', 0, 0, 0, 2, 0, 0, 0x10, 0];
        expected.extend([7; 4_096]);
        expected.extend([0, 0, 0, 1, 0, 1, 0x86, 0xa0]);
        expected.extend([8; 100_000]);
        let mut got = vec![0; expected.len()];
        peer.read_exact(&mut got).await.expect("read");
        assert!(got == expected);
    });
}

#[test]
fn what_the_socket_does_not_take_at_once_is_sent_when_it_does() {
    on_tokio(async {
        let ((_near, mut near), (_far, mut far)) = pair();
        // Together far more than a socket holds.
        let sent: Vec<Vec<u8>> = (0..40u8).map(|n| vec![n; 100_000 + usize::from(n)]).collect();
        for part in &sent {
            near.plugin.write_all(part).await.expect("written");
            near.runtime.write_all(&part[..10]).await.expect("written");
        }
        let mut got = vec![0; sent.iter().map(Vec::len).sum()];
        far.plugin.read_exact(&mut got).await.expect("read");
        assert!(got == sent.concat());
        let mut heads = vec![0; 10 * sent.len()];
        far.runtime.read_exact(&mut heads).await.expect("read");
        assert!(heads == sent.iter().flat_map(|part| &part[..10]).copied().collect::<Vec<_>>());
    });
}

#[test]
fn a_peer_that_does_not_read_is_closed_and_named() {
    on_tokio(async {
        let ((mux, mut channels), _peer) = with_raw_peer();
        let megabyte = vec![0; 1 << 20];
        let failure = loop {
            if let Err(error) = channels.plugin.write_all(&megabyte).await {
                break error;
            }
        };
        assert!(matches!(mux.closing().reason(), Some(Closed::NotRead { limit: UNSENT_MAX_BYTES, .. })));
        assert!(failure.to_string().starts_with("the other side does not read: "), "{failure}");
        assert!(channels.runtime.write_all(b"x").await.is_err());
    });
}

#[test]
fn a_frame_for_a_connection_that_nobody_knows_is_dropped() {
    on_tokio(async {
        let ((mux, mut channels), mut peer) = with_raw_peer();
        for connection in [0, 3, u32::MAX] {
            let frame = [Header { connection, length: 70_000 }.to_bytes().to_vec(), vec![9; 70_000]].concat();
            peer.write_all(&frame).await.expect("written");
        }
        peer.write_all(&[0, 0, 0, 1, 0, 0, 0, 0]).await.expect("written");
        peer.write_all(&[0, 0, 0, 1, 0, 0, 0, 2, b'o', b'k']).await.expect("written");
        let mut got = [0; 2];
        channels.plugin.read_exact(&mut got).await.expect("read");
        assert_eq!(&got, b"ok");
        assert_eq!(mux.closing().reason(), None);
    });
}

#[test]
fn the_end_is_named_by_how_it_came() {
    on_tokio(async {
        let ((mux, mut channels), peer) = with_raw_peer();
        drop(peer);
        assert_eq!(mux.closing().closed().await, Closed::There);
        assert_eq!(channels.plugin.read(&mut [0; 1]).await.expect("an orderly end"), 0);

        let ((mux, mut channels), mut peer) = with_raw_peer();
        peer.write_all(&[0, 0, 0, 1, 0, 0, 0, 9, 1, 2]).await.expect("written");
        drop(peer);
        assert_eq!(mux.closing().closed().await, Closed::CutOff { got: 10, of: 17 });
        let error = channels.plugin.read(&mut [0; 1]).await.expect_err("no orderly end");
        assert_eq!(error.to_string(), "the connection ended after 10 of the 17 bytes of a frame");

        let ((mux, _channels), mut peer) = with_raw_peer();
        peer.write_all(b"GET / HTTP/1.1\r\n").await.expect("written");
        let closed = mux.closing().closed().await;
        assert!(matches!(closed, Closed::TooLong { connection: 0x4745_5420, .. }), "{closed}");

        let ((mux, mut channels), _peer) = with_raw_peer();
        let closing = mux.closing();
        drop(mux);
        assert_eq!(closing.closed().await, Closed::here("it is not needed any more"));
        assert_eq!(channels.runtime.read(&mut [0; 1]).await.expect("an orderly end"), 0);
        assert!(channels.runtime.write_all(b"x").await.is_err());
    });
}

/// A channel that somebody still holds kept the socket open, so that the other side saw no end.
#[test]
fn the_other_side_sees_an_end_at_once_whoever_holds_a_channel() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (_channels, mut peer) = tokio.block_on(async {
        let ((_mux, mut channels), peer) = with_raw_peer();
        channels.plugin.write_all(b"last words").await.expect("written");
        (channels, peer.into_std().expect("a socket"))
    });
    // Nothing runs on tokio any more.
    peer.set_nonblocking(false).expect("set");
    let mut got = Vec::new();
    std::io::Read::read_to_end(&mut peer, &mut got).expect("an end");
    assert_eq!(&got[HEADER_BYTES..], b"last words");

    on_tokio(async {
        let ((mux, _channels), mut peer) = with_raw_peer();
        mux.closing().close(Closed::here("enough"));
        assert_eq!(peer.read(&mut [0; 1]).await.expect("an end"), 0);
    });
}

#[test]
fn what_came_before_the_end_is_still_read() {
    on_tokio(async {
        let ((mux, mut channels), mut peer) = with_raw_peer();
        peer.write_all(&[0, 0, 0, 2, 0, 0, 0, 2, b'o', b'k']).await.expect("written");
        drop(peer);
        assert_eq!(mux.closing().closed().await, Closed::There);
        let mut got = Vec::new();
        channels.runtime.read_to_end(&mut got).await.expect("read");
        assert_eq!(got, b"ok");
    });
}

#[test]
fn a_queue_that_nobody_reads_is_waited_for_and_then_closes_all() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio.block_on(async {
        let ((mux, _channels), mut peer) = with_raw_peer();
        let one = [0, 0, 0, 1, 0, 0, 0, 1, 0];
        peer.write_all(&one.repeat(QUEUE_FRAMES + 1)).await.expect("written");
        // The reader takes all of it before time passes by itself.
        for _ in 0..4 * QUEUE_FRAMES {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        let closed = mux.closing().closed().await;
        let expected = Closed::Overflow { connection: 1, frames: QUEUE_FRAMES, waited_ms: QUEUE_PATIENCE_MS };
        assert_eq!(closed, expected);
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_connections_carry_what_was_written(
        writes in proptest::collection::vec((any::<bool>(), any::<u8>(), 0..9_000usize), 0..80)
    ) {
        on_tokio(async {
            let ((near_mux, mut near), (_far_mux, mut far)) = pair();
            let mut expected = [Vec::new(), Vec::new()];
            for (runtime, byte, length) in &writes {
                let bytes = vec![*byte; *length];
                let channel = if *runtime { &mut near.runtime } else { &mut near.plugin };
                channel.write_all(&bytes).await.expect("written");
                expected[usize::from(*runtime)].extend(bytes);
            }
            let mut got = [vec![0; expected[0].len()], vec![0; expected[1].len()]];
            let [plugin, runtime] = &mut got;
            let (first, second) =
                tokio::join!(far.plugin.read_exact(plugin), far.runtime.read_exact(runtime));
            first.expect("read");
            second.expect("read");
            assert!(got == expected);
            drop(near_mux);
        });
    }

    #[test]
    fn headers_are_read_as_they_were_written(connection: u32, length: u32) {
        let header = Header { connection, length };
        prop_assert_eq!(Header::from_bytes(header.to_bytes()), header);
    }

    /// Whatever comes, both channels end, with a reason, and nothing is kept that was only announced.
    #[test]
    fn garbage_ends_all_with_a_reason(garbage in proptest::collection::vec(any::<u8>(), 0..3_000)) {
        on_tokio(async {
            let ((mux, mut channels), mut peer) = with_raw_peer();
            // It may be closed before all is written.
            let _ = peer.write_all(&garbage).await;
            drop(peer);
            let closed = mux.closing().closed().await;
            prop_assert!(
                matches!(closed, Closed::There | Closed::CutOff { .. } | Closed::TooLong { .. }),
                "{}", closed
            );
            let mut got = Vec::new();
            let _ = channels.plugin.read_to_end(&mut got).await;
            let _ = channels.runtime.read_to_end(&mut got).await;
            prop_assert!(got.len() <= garbage.len());
            Ok(())
        })?;
    }
}
