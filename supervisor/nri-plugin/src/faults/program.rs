//! A plugin that does nothing but what its plan says, and a program that is one.
//!
//! Owns: nothing. Never: changes a container.

use std::process::ExitCode;

use async_trait::async_trait;
use mainstay_nri_api::EventMask;

use super::Faults;
use crate::options::{Identity, Options};
use crate::plugin::Plugin;
use crate::run::run;

/// Hears of everything, and agrees.
#[derive(Clone, Copy, Debug)]
pub struct Obedient;

#[async_trait]
impl Plugin for Obedient {
    fn events(&self) -> EventMask {
        EventMask::ALL
    }
}

/// What the `main` of a pre-installed plugin with faults returns. Its plan is in its configuration.
pub async fn program() -> ExitCode {
    let options = match Options::from_environment(Identity::new("00", "faulty")) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    options.faults.ends_program();
    match run(Obedient, options).await {
        Ok(closed) => {
            eprintln!("{closed}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

impl Faults {
    /// A fault that ends the plugin ends the program.
    pub fn ends_program(&self) {
        self.reach().ends_program = true;
    }
}
