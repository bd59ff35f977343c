//! What a fault does.
//!
//! Owns: the bytes that no honest plugin would send. Never: chooses the fault.

use std::future::pending;
use std::io::Write as _;
use std::time::Duration;

use mainstay_nri_api::mux::{Closed, Header, PLUGIN_CONNECTION};
use mainstay_nri_api::ttrpc::{self, Code, get_status};

use super::plan::Fault;
use super::{Faults, unknown};
use crate::service::Asked;

/// A protobuf message of type `Response` whose payload is cut off.
const CUT_OFF: [u8; 4] = [0x12, 0x02, 0x0a, 0x7f];
/// Bytes that announce a frame of two thousand million bytes.
const NOISE: [u8; 64] = [0x77; 64];
/// The type of a ttrpc message that is an answer.
const RESPONSE: u8 = 2;
/// How long an update of a flood is waited for.
const FLOOD_LIMIT: Duration = Duration::from_secs(60);

impl Faults {
    pub(super) async fn commit(&self, fault: Fault, asked: &Asked) -> ttrpc::Result<()> {
        match fault {
            Fault::Refuse(text) => Err(ttrpc::Error::RpcStatus(get_status(Code::UNKNOWN, text))),
            Fault::Unknown => Err(unknown(asked)),
            Fault::Hang => pending().await,
            Fault::Late(time) => {
                tokio::time::sleep(time).await;
                Ok(())
            }
            Fault::Panic => panic!("the plan of this plugin says so"),
            Fault::Die => {
                self.die();
                pending().await
            }
            Fault::Garbage => {
                self.send(&answer(asked.stream, &CUT_OFF));
                pending().await
            }
            Fault::Noise => {
                self.send(&NOISE);
                pending().await
            }
            Fault::Frames(count) => {
                // Numbers that no request has: those of requests are odd.
                self.send(&answer(2, &CUT_OFF).repeat(count as usize));
                Ok(())
            }
            Fault::Flood(count) => {
                self.flood(count).await;
                Ok(())
            }
        }
    }

    fn die(&self) {
        let reach = self.reach();
        if reach.ends_program {
            std::process::exit(1);
        }
        if let Some(closing) = &reach.closing {
            closing.close(Closed::here("the plan of this plugin says so"));
        }
        if let Some(socket) = &reach.socket {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    /// Past all queues. What the socket does not take now is not sent.
    fn send(&self, bytes: &[u8]) {
        if let Some(mut socket) = self.reach().socket.as_ref() {
            let _ = socket.write_all(bytes);
        }
    }

    async fn flood(&self, count: u32) {
        let Some(runtime) = self.reach().runtime.clone() else { return };
        let asked = (0..count).map(|_| runtime.update_containers(Vec::new(), Vec::new(), FLOOD_LIMIT));
        futures::future::join_all(asked).await;
    }
}

/// A frame with an answer of ttrpc: length, number of the request, type, no flags.
fn answer(stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut message = (payload.len() as u32).to_be_bytes().to_vec();
    message.extend(stream.to_be_bytes());
    message.extend([RESPONSE, 0]);
    message.extend(payload);
    let header = Header { connection: PLUGIN_CONNECTION, length: message.len() as u32 };
    [header.to_bytes().to_vec(), message].concat()
}
