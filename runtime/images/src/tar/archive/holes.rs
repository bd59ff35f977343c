//! Where the pieces of a sparse file are: in GNU's header, in records, or at the beginning of its data.

use std::io::Read;

use tar::{EntryType, GnuExtSparseHeader, Header};

use super::{Archive, BLOCK_BYTES, Result};
use crate::tar::pax;
use crate::tar::sparse::{self, SparseMap, TextMap};

/// What records say about sparseness.
#[derive(Default)]
pub(super) struct SparseRecords {
    version_1: bool,
    length: Option<u64>,
    name: Option<Vec<u8>>,
    pairs: Vec<(u64, u64)>,
    offset: Option<u64>,
    present: bool,
}

impl<R: Read> Archive<R> {
    pub(super) fn sparse_map(
        &mut self,
        header: &Header,
        path: &mut Vec<u8>,
        records: SparseRecords,
    ) -> Result<Option<SparseMap>> {
        let (length, pieces) = if header.entry_type() == EntryType::GNUSparse {
            self.gnu_map(header)?
        } else if records.present {
            if let Some(name) = records.name {
                *path = name;
            }
            let Some(length) = records.length else {
                return Err(self.malformed("a sparse file without its length".to_owned()));
            };
            let pieces = if records.version_1 { self.text_map()? } else { records.pairs };
            (length, pieces)
        } else {
            return Ok(None);
        };
        let map = SparseMap::checked(length, pieces, self.remaining);
        map.map(Some)
            .ok_or_else(|| self.malformed("the map of the sparse file contradicts itself".to_owned()))
    }

    fn gnu_map(&mut self, header: &Header) -> Result<(u64, Vec<(u64, u64)>)> {
        let Some(gnu) = header.as_gnu() else {
            return Err(self.malformed("a sparse file in an archive that is not GNU's".to_owned()));
        };
        let length = self.unsigned(&gnu.realsize, "length")?;
        let mut pieces = Vec::new();
        for piece in gnu.sparse.iter().filter(|piece| !piece.is_empty()) {
            pieces.push((self.unsigned(&piece.offset, "offset")?, self.unsigned(&piece.numbytes, "piece")?));
        }
        let mut more = gnu.is_extended();
        while more {
            let mut block = GnuExtSparseHeader::new();
            if !self.block(block.as_mut_bytes())? {
                return Err(self.cut_short());
            }
            for piece in block.sparse().iter().filter(|piece| !piece.is_empty()) {
                pieces.push((
                    self.unsigned(&piece.offset, "offset")?,
                    self.unsigned(&piece.numbytes, "piece")?,
                ));
            }
            if pieces.len() > sparse::PIECES_MAX {
                return Err(self.malformed(format!("more than {} pieces", sparse::PIECES_MAX)));
            }
            more = block.is_extended();
        }
        Ok((length, pieces))
    }

    fn text_map(&mut self) -> Result<Vec<(u64, u64)>> {
        let mut map = TextMap::default();
        loop {
            let mut block = [0; BLOCK_BYTES];
            let mut filled = 0;
            while filled < BLOCK_BYTES {
                match self.read(&mut block[filled..])? {
                    0 => return Err(self.cut_short()),
                    count => filled += count,
                }
            }
            match map.take(&block) {
                Some(true) => return Ok(map.pairs()),
                Some(false) => {}
                None => return Err(self.malformed("the map of the sparse file is malformed".to_owned())),
            }
        }
    }
}

impl SparseRecords {
    pub(super) fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match key {
            b"major" => self.version_1 = pax::number::<u32>(value)? == 1,
            b"size" | b"realsize" => self.length = Some(pax::number(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"map" => self.pairs = sparse::pairs(value)?,
            b"offset" => self.offset = Some(pax::number(value)?),
            b"numbytes" if self.pairs.len() < sparse::PIECES_MAX => {
                self.pairs.push((self.offset.take()?, pax::number(value)?));
            }
            b"minor" | b"numblocks" => {}
            _ => return None,
        }
        self.present = true;
        Some(())
    }
}
