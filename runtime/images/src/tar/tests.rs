use super::*;

#[test]
fn what_follows_the_end_is_read_and_dropped() {
    let mut archive = Archive::new(&[0u8; 10_240][..]);
    assert_eq!(archive.next().expect("an end"), None);
    assert_eq!(archive.number(), 0);
}

/// `umoci insert` ends its layers with the last byte of the last file, without padding or an end. Docker and containerd take
/// them; we said that the archive was cut short, and pulled no image that was made so.
#[test]
fn an_archive_may_end_with_its_data() {
    let mut header = ::tar::Header::new_gnu();
    header.set_path("file").expect("a short name");
    header.set_size(4);
    header.set_mode(0o644);
    header.set_entry_type(::tar::EntryType::Regular);
    header.set_cksum();
    let bytes = [&header.as_bytes()[..], b"kept"].concat();
    let mut archive = Archive::new(&bytes[..]);
    archive.next().expect("readable").expect("a file");
    assert_eq!(archive.read_all(4).expect("whole"), b"kept");
    assert_eq!(archive.next().expect("an end"), None);
    let mut archive = Archive::new(&bytes[..bytes.len() - 1]);
    archive.next().expect("readable").expect("a file");
    assert!(archive.next().expect_err("a byte is missing").to_string().contains("cut short"));
}
