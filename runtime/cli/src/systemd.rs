//! What systemd is told of a daemon that it has started: that it is ready, that it is alive, that it ends.
//!
//! Owns: readiness (after what ran before was adopted) and the watchdog. A sign of life is given when the actors have answered, from the loop that serves
//! the sockets: a daemon of which either hangs is ended by systemd and started again, and its containers run on (P5). Never: says anything where no
//! `NOTIFY_SOCKET` is.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use mainstay::daemon::Endpoint;
use mainstay::{Result, Runtime};
use sd_notify::NotifyState;

/// Signs of life in each time of the watchdog: one may come late.
const SIGNS_PER_WATCHDOG: u32 = 3;

/// A daemon under systemd.
#[derive(Debug)]
pub(crate) struct Supervised;

impl Endpoint for Supervised {
    fn name(&self) -> &'static str {
        "systemd"
    }

    fn serve(
        self: Box<Self>,
        runtime: Runtime,
        shutdown: BoxFuture<'static, ()>,
    ) -> BoxFuture<'static, Result<()>> {
        async move {
            let (pods, containers) = (runtime.sandboxes().len(), runtime.containers().len());
            let status = format!("{pods} pods and {containers} containers at the start");
            tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
            match sd_notify::watchdog_enabled() {
                Some(patience) => {
                    tokio::select! {
                        () = live(&runtime, patience) => {}
                        () = shutdown => {}
                    }
                }
                None => shutdown.await,
            }
            tell(&[NotifyState::Stopping]);
            Ok(())
        }
        .boxed()
    }
}

/// Gives signs of life until the runtime is closed.
async fn live(runtime: &Runtime, patience: Duration) {
    // Without a time-out: no sign is the message.
    while runtime.pulse().await.is_ok() {
        tell(&[NotifyState::Watchdog]);
        tokio::time::sleep(patience / SIGNS_PER_WATCHDOG).await;
    }
}

fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "systemd could not be told");
    }
}
