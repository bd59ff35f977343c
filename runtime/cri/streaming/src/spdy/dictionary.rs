//! The dictionary that header blocks of SPDY/3 are compressed with (section 2.6.10.1 of the specification).
//!
//! Owns: its 1,423 bytes. Never: reads anything.

/// Words with their length before them, as in a header block.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges age \
     allow authorization cache-control connection content-base content-encoding content-language content-length \
     content-location content-md5 content-range content-type date etag expect expires from host if-match \
     if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
     proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
     user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
     keep-alive origin";
/// Status codes, dates and values, with nothing between them.
const TAIL: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
     203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
     404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
     Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
     application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
     charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";

/// The dictionary.
pub(super) fn dictionary() -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1_423);
    for word in WORDS.split_whitespace() {
        // The one word that has a space in it.
        let word = word.replace('_', " ");
        bytes.extend_from_slice(&(word.len() as u32).to_be_bytes());
        bytes.extend_from_slice(word.as_bytes());
    }
    bytes.extend_from_slice(TAIL.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What zlib calls the dictionary by, as captures of real connections have it.
    #[test]
    fn it_is_the_one_that_everybody_has() {
        let (mut a, mut b) = (1u32, 0u32);
        for byte in dictionary() {
            a = (a + u32::from(byte)) % 65_521;
            b = (b + a) % 65_521;
        }
        assert_eq!((b << 16) | a, 0xe3c6_a7c2);
    }
}
