//! Reading a blob, also while it is being fetched.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use mainstay_oci_image::Descriptor;

use crate::activity::{End, Work};

/// Reads one blob from its beginning. While it is being fetched, a read waits for bytes. All of them may have been read
/// before the blob is verified: whoever needs that waits for the blob; a layer has its DiffID.
#[derive(Debug)]
pub struct BlobReader {
    file: File,
    descriptor: Descriptor,
    position: u64,
    work: Option<Arc<Work>>,
    round: Option<u64>,
}

/// What a reader sees.
enum Seen {
    Bytes(u64),
    End,
    Stopped,
    Restarted,
}

impl BlobReader {
    pub(crate) fn complete(file: File, descriptor: Descriptor) -> Self {
        Self { file, descriptor, position: 0, work: None, round: None }
    }

    pub(crate) fn following(file: File, work: Arc<Work>, descriptor: Descriptor) -> Self {
        Self { file, descriptor, position: 0, work: Some(work), round: None }
    }

    /// The blob.
    pub fn descriptor(&self) -> &Descriptor {
        &self.descriptor
    }

    fn look(&mut self) -> Seen {
        let Some(work) = &self.work else { return Seen::Bytes(u64::MAX) };
        let (position, began) = (self.position, self.round);
        let (seen, round) = work.wait(|state| {
            let seen = if position > 0 && began.is_some_and(|began| began != state.round) {
                Seen::Restarted
            } else if state.written > position {
                Seen::Bytes(state.written - position)
            } else {
                match state.end? {
                    End::Complete => Seen::End,
                    End::Stopped => Seen::Stopped,
                }
            };
            Some((seen, state.round))
        });
        self.round = Some(round);
        seen
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.work.is_some() && self.position == self.descriptor.size {
            // Verifying, syncing and recording it go on beside what is done with its bytes.
            return Ok(0);
        }
        let available = match self.look() {
            Seen::Bytes(available) => available,
            Seen::End => return Ok(0),
            Seen::Stopped => {
                let digest = &self.descriptor.digest;
                return Err(io::Error::other(format!(
                    "whoever fetched blob {digest} stopped before its end"
                )));
            }
            Seen::Restarted => {
                let digest = &self.descriptor.digest;
                return Err(io::Error::other(format!("blob {digest} is fetched anew from its beginning")));
            }
        };
        let wanted = usize::try_from(available).unwrap_or(usize::MAX).min(buffer.len());
        let count = self.file.read_at(&mut buffer[..wanted], self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}
