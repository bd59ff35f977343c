//! The ticket that a child of the router holds. Its drop, panics included, tells the router that the child
//! is gone, unless the child was taken down on purpose.

use actix::Recipient;
use mainstay_messages::router::{Child, ChildLost};

/// See the module.
pub(crate) struct Ticket {
    child: Child,
    generation: u32,
    /// None once it is retired.
    router: Option<Recipient<ChildLost>>,
}

impl Ticket {
    /// A ticket for this start of the child.
    pub(crate) fn new(child: Child, generation: u32, router: Recipient<ChildLost>) -> Self {
        Self { child, generation, router: Some(router) }
    }

    /// From now on the end of the child is no loss.
    pub(crate) fn retire(&mut self) {
        self.router = None;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if let Some(router) = self.router.take() {
            router.do_send(ChildLost { child: self.child.clone(), generation: self.generation });
        }
    }
}
