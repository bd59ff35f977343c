//! The form in which `start` answers.
//!
//! | containerd | gives | understands |
//! |---|---|---|
//! | up to 2.2 | nothing, or the runtime's options, on standard input; `MAX_SHIM_VERSION=2` | the address alone |
//! | that says `MAX_SHIM_VERSION=3` or more | the same | JSON |
//! | 2.3 and newer | BootstrapParams of this very container on standard input | BootstrapResult |
//!
//! Owns: which form it is, and its bytes. Never: reads or writes.

use mainstay_task_api::Message;
use mainstay_task_api::bootstrap::{BootstrapParams, BootstrapResult};

use super::{CONTAINERD_SHIM_NAME, Sentence, failed};

/// The version of the Task API that is answered where the form says one.
const TASK_VERSION: u8 = 3;
/// The only protocol that the shim speaks.
const PROTOCOL: &str = "ttrpc";

/// How `start` answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Plain,
    Json,
    Protobuf,
}

/// The form that fits what was given. Options can be read as BootstrapParams by chance, so these have to name the container.
pub(super) fn form(input: &[u8], id: &str, namespace: &str, max_version: Option<&str>) -> Form {
    let params = BootstrapParams::parse_from_bytes(input).ok();
    if params.is_some_and(|params| params.instance_id == id && params.namespace == namespace) {
        return Form::Protobuf;
    }
    match max_version.and_then(|text| text.trim().parse::<u32>().ok()) {
        Some(version) if version >= u32::from(TASK_VERSION) => Form::Json,
        _ => Form::Plain,
    }
}

/// The answer.
pub(super) fn answer(form: Form, address: &str) -> Result<Vec<u8>, Sentence> {
    match form {
        Form::Plain => Ok(address.as_bytes().to_vec()),
        Form::Json => {
            let answer = serde_json::json!({
                "version": TASK_VERSION, "address": address, "protocol": PROTOCOL,
            });
            Ok(answer.to_string().into_bytes())
        }
        Form::Protobuf => {
            let result = BootstrapResult {
                version: i32::from(TASK_VERSION),
                address: address.to_owned(),
                protocol: PROTOCOL.to_owned(),
                ..BootstrapResult::default()
            };
            result.write_to_bytes().map_err(failed(format!("answering as {CONTAINERD_SHIM_NAME}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use mainstay_task_api::well_known_types::any::Any;

    use super::*;

    #[test]
    fn each_containerd_gets_what_it_understands() {
        assert_eq!(form(b"", "web", "k8s.io", None), Form::Plain);
        assert_eq!(form(b"", "web", "k8s.io", Some("2")), Form::Plain);
        assert_eq!(form(b"", "web", "k8s.io", Some("3")), Form::Json);
        let options =
            Any { type_url: "containerd.runc.v1.Options".to_owned(), value: vec![1], ..Any::default() };
        let options = options.write_to_bytes().expect("small");
        assert_eq!(form(&options, "web", "k8s.io", Some("2")), Form::Plain, "options of 1.6");
        let mut params = BootstrapParams {
            instance_id: "web".to_owned(),
            namespace: "k8s.io".to_owned(),
            ..BootstrapParams::default()
        };
        let bytes = params.write_to_bytes().expect("small");
        assert_eq!(form(&bytes, "web", "k8s.io", Some("2")), Form::Protobuf);
        params.instance_id = "other".to_owned();
        let bytes = params.write_to_bytes().expect("small");
        assert_eq!(form(&bytes, "web", "k8s.io", Some("2")), Form::Plain, "of another container");
    }

    #[test]
    fn the_answers_are_those_of_the_interface() {
        let address = "unix:///run/containerd/s/0";
        assert_eq!(answer(Form::Plain, address).expect("small"), address.as_bytes());
        let json = answer(Form::Json, address).expect("small");
        let json: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        assert_eq!((&json["version"], &json["protocol"]), (&3.into(), &"ttrpc".into()));
        let result = answer(Form::Protobuf, address).expect("small");
        let result = BootstrapResult::parse_from_bytes(&result).expect("a result");
        assert_eq!((result.version, result.address.as_str()), (3, address));
    }
}
