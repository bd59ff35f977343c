//! To write NRI plugins in Rust, for any runtime that speaks NRI.
//!
//! Owns: connecting, registering, staying connected, and turning what a runtime says into calls of a [`Plugin`].
//! Never: decides what a plugin does.
//!
//! ```no_run
//! use mainstay_nri_plugin::api::{ContainerAdjustment, Container, Event, EventMask, KeyValue, PodSandbox};
//! use mainstay_nri_plugin::{Adjusted, Identity, Options, Plugin, Result, async_trait};
//!
//! struct Greeter;
//!
//! #[async_trait]
//! impl Plugin for Greeter {
//!     fn events(&self) -> EventMask {
//!         EventMask::NONE.with(Event::CREATE_CONTAINER)
//!     }
//!
//!     async fn create_container(&self, _: PodSandbox, container: Container) -> Result<Adjusted> {
//!         let mut adjust = ContainerAdjustment::default();
//!         let value = format!("hello {}", container.name);
//!         adjust.env.push(KeyValue { key: "GREETING".to_owned(), value, ..Default::default() });
//!         Ok(Adjusted { adjust, ..Default::default() })
//!     }
//! }
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//!     let options = Options::from_environment(Identity::new("10", "greeter"))?;
//!     mainstay_nri_plugin::run(Greeter, options).await?;
//!     Ok(())
//! }
//! ```
//!
//! Started by hand it connects to the socket of the runtime; put into the directory of pre-installed plugins it uses the
//! connection that the runtime gives it. `examples/events.rs` prints everything that it is told.

#[cfg(feature = "faults")]
pub mod faults;
mod options;
mod plugin;
mod run;
mod service;
mod session;

pub use async_trait::async_trait;
pub use mainstay_nri_api as api;
pub use options::{Door, EnvironmentError, Identity, Options, Reconnect};
pub use plugin::{Adjusted, Configuration, Failure, Plugin, Result, Updated};
pub use run::{RECONNECT_FIRST_MS, RECONNECT_MAX_MS, run};
pub use service::Way;
pub use session::{ConnectError, REGISTRATION_TIMEOUT_MS, Runtime, RuntimeError, Session};
