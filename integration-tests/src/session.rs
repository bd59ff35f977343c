//! What tests do with the streams of a process.

use mainstay::{Exit, Session, SessionItem};

use crate::wait;

/// Writes to a session that gives back what it gets, as `cat` does, and closes its input; what came back, and its end. With more than
/// all buffers on the way hold together, input waits for output.
pub async fn echoed(session: Session, sent: &[u8]) -> (Vec<u8>, Exit) {
    let (mut reader, mut writer) = session.split();
    let write = async {
        writer.write(sent).await.expect("taken");
        writer.close_stdin().await.expect("closed");
    };
    let read = async {
        let mut got = Vec::new();
        loop {
            match reader.next().await.expect("readable").expect("not over yet") {
                SessionItem::Output { bytes, .. } => got.extend(bytes),
                SessionItem::Exited(exit) => return (got, exit),
                SessionItem::CutOff { .. } => panic!("an exec waits for its reader"),
            }
        }
    };
    let ((), all) = wait::finish("it ends", async { tokio::join!(write, read) }).await;
    all
}
