//! Merging against a reference model, and stories.

mod model;
mod property;
mod stories;

use mainstay_nri_api as api;
use mainstay_nri_api::{Container, ContainerAdjustment, CreateContainerResponse, KeyValue, MessageField};

/// The container that every test begins with.
fn base() -> Container {
    Container {
        id: "box".to_owned(),
        args: vec!["httpd".to_owned()],
        env: vec!["A=base".to_owned(), "Z=base".to_owned()],
        mounts: vec![mount("/m/A", "/base")],
        annotations: [("A".to_owned(), "base".to_owned())].into(),
        ..Default::default()
    }
}

fn mount(destination: &str, source: &str) -> api::Mount {
    api::Mount {
        destination: destination.to_owned(),
        type_: "bind".to_owned(),
        source: source.to_owned(),
        ..Default::default()
    }
}

fn variable(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: value.to_owned(), ..Default::default() }
}

fn answer(change: impl FnOnce(&mut ContainerAdjustment)) -> CreateContainerResponse {
    let mut adjustment = ContainerAdjustment::new();
    change(&mut adjustment);
    CreateContainerResponse { adjust: MessageField::some(adjustment), ..Default::default() }
}
