//! Images as the interface shows them.

use mainstay::{CriSettings, Image, ImageReference};
use mainstay_cri_api::{ImageSpec, Int64Value};

/// Which images are pinned: names of the configuration, completed as those of images are.
pub(super) struct Pinned(Vec<String>);

impl Pinned {
    /// What the configuration says.
    pub(super) fn of(settings: &CriSettings) -> Self {
        let completed =
            |name: &String| name.parse().map_or_else(|_| name.clone(), |n: ImageReference| n.to_string());
        Self(settings.pinned_images.iter().map(completed).collect())
    }

    fn has(&self, image: &Image) -> bool {
        let names = image.tags.iter().chain(&image.digests).chain([&image.id.0]);
        names.into_iter().any(|name| self.0.contains(name))
    }
}

/// An image. Its size is what its removal may free: its blobs, and its layers unpacked.
pub(super) fn image(image: &Image, pinned: &Pinned) -> mainstay_cri_api::Image {
    let (uid, username) = user(&image.run.user);
    mainstay_cri_api::Image {
        id: image.id.0.clone(),
        // A name that says the digest too is among the digests.
        repo_tags: image.tags.iter().filter(|tag| !tag.contains('@')).cloned().collect(),
        repo_digests: image.digests.clone(),
        size: (image.blob_bytes + image.unpacked_bytes).max(1),
        uid,
        username,
        spec: Some(ImageSpec { image: image.id.0.clone(), ..ImageSpec::default() }),
        pinned: pinned.has(image),
    }
}

/// The user of an image as a number or as a name; neither where it says nothing. Its group is not told.
fn user(text: &str) -> (Option<Int64Value>, String) {
    let user = text.split_once(':').map_or(text, |(user, _)| user);
    match user.parse() {
        Ok(value) => (Some(Int64Value { value }), String::new()),
        Err(_) => (None, user.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", None, "")]
    #[case("1002", Some(1002), "")]
    #[case("1003:users", Some(1003), "")]
    #[case("www-data", None, "www-data")]
    #[case("www-data:100", None, "www-data")]
    fn users(#[case] text: &str, #[case] uid: Option<i64>, #[case] name: &str) {
        assert_eq!(user(text), (uid.map(|value| Int64Value { value }), name.to_owned()));
    }
}
