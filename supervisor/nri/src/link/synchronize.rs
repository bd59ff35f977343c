//! Telling a plugin everything that there is.
//!
//! Owns: sending the parts one after the other, within a time that grows with their number. Never: knows what is there.

use std::time::{Duration, Instant};

use mainstay_nri_api::{Container, ContainerUpdate, PodSandbox, SynchronizeRequest, SynchronizeResponse};

use super::answer::CallError;
use super::parts::{Oversized, cut};
use super::{Link, millis};

/// Why a plugin was not synchronised.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SynchronizeError {
    /// A call failed.
    #[error(transparent)]
    Call(CallError),
    /// Something there cannot be sent.
    #[error(transparent)]
    Oversized(Oversized),
    /// It does not understand that there is more to come, and so believes that what it has is all.
    #[error("the plugin took part {part} of {parts} for all that there is; it does not know of parts")]
    NoParts {
        /// The part, from 1 on.
        part: usize,
        /// How many there are.
        parts: usize,
    },
}

impl Link {
    /// Tells it all pods and containers, and gives back the updates that it asks for. `limit_per_part` times the number of
    /// parts is the time for all of it; what one part leaves the next one has. A part is at most
    /// [`SYNC_PART_MAX_BYTES`](super::SYNC_PART_MAX_BYTES) long.
    pub async fn synchronize(
        &self,
        pods: Vec<PodSandbox>,
        containers: Vec<Container>,
        limit_per_part: Duration,
    ) -> Result<Vec<ContainerUpdate>, SynchronizeError> {
        let parts = cut(pods, containers).map_err(SynchronizeError::Oversized)?;
        let count = parts.len();
        let limit = limit_per_part.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let started = Instant::now();
        let mut updates = Vec::new();
        for (part, request) in (1..).zip(parts) {
            let left = limit.saturating_sub(started.elapsed());
            let answer = self.part(&request, left).await.map_err(|error| match error {
                CallError::Late { call, .. } => CallError::Late { call, after_ms: millis(limit) },
                error => error,
            });
            let answer = answer.map_err(SynchronizeError::Call)?;
            if answer.more != request.more {
                return Err(SynchronizeError::NoParts { part, parts: count });
            }
            updates.extend(answer.update);
        }
        Ok(updates)
    }

    async fn part(
        &self,
        request: &SynchronizeRequest,
        limit: Duration,
    ) -> Result<SynchronizeResponse, CallError> {
        self.ask("Synchronize", limit, request, |client, context| async move {
            client.synchronize(context, request).await
        })
        .await
    }
}
