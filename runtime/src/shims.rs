//! The shims of a runtime, as operators see them.

use mainstay_messages::Result;
use mainstay_messages::shim::{DescribeShims, ShimStatus};

use crate::closing::closed;
use crate::runtime::Runtime;

impl Runtime {
    /// The shims that run, by the names of their pods. Nobody waits for one: what it does not say within
    /// [`DESCRIBE_MS`](mainstay_supervisor::DESCRIBE_MS) is described as that.
    ///
    /// # Errors
    /// [`Error::DeadlineExceeded`](crate::Error::DeadlineExceeded) when the kernel does not tell of processes in time.
    pub async fn shims(&self) -> Result<Vec<ShimStatus>> {
        let answer = self.closed().or(self.system().supervisor.send(DescribeShims)).await?;
        let described = answer.map_err(|_| closed())??;
        // A pod that is gone meanwhile has no shim either.
        let mut shims: Vec<_> = described
            .into_iter()
            .filter_map(|(sandbox, shim)| {
                let record = &self.sandbox(&sandbox).ok()?.record;
                let name = record.name().to_string();
                let handler = record.spec.handler.as_ref().map(ToString::to_string);
                Some(ShimStatus { sandbox, name, handler, shim })
            })
            .collect();
        shims.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(shims)
    }
}
