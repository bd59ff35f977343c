//! Images: listed, pulled, removed, and the file systems they are on.
//!
//! Owns: `ListImages`, `StreamImages`, `ImageStatus`, `PullImage`, `RemoveImage`, `ImageFsInfo`. What an image is called by its id is the same in all of
//! them, and in what is told of containers: the digest of its configuration.

mod auth;
mod file_systems;
mod view;

use std::collections::HashMap;
use std::sync::Arc;

use mainstay::{Image, ImageName, PullSpec};
use mainstay_cri_api::{
    ImageFilter, ImageFsInfoRequest, ImageFsInfoResponse, ImageSpec, ImageStatusRequest, ImageStatusResponse,
    ListImagesRequest, ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest,
    RemoveImageResponse, StreamImagesRequest, StreamImagesResponse,
};
use mainstay_messages::Error;
use serde_json::{Value, json};

use self::view::Pinned;
use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::{Answers, in_pieces};

/// `ListImages`
pub(crate) async fn list(node: Arc<Node>, request: ListImagesRequest) -> Result<ListImagesResponse> {
    Ok(ListImagesResponse { images: listed(&node, request.filter).await? })
}

/// `StreamImages`
pub(crate) async fn stream(
    node: Arc<Node>,
    request: StreamImagesRequest,
) -> Result<Answers<StreamImagesResponse>> {
    let images = listed(&node, request.filter).await?;
    Ok(in_pieces(images, |images| StreamImagesResponse { images }))
}

/// `ImageStatus`: of an image that is not here, an answer without one.
pub(crate) async fn status(node: Arc<Node>, request: ImageStatusRequest) -> Result<ImageStatusResponse> {
    let Some(image) = found(&node, request.image.as_ref()).await? else {
        return Ok(ImageStatusResponse::default());
    };
    let info = if request.verbose { info(&node, &image).await? } else { HashMap::new() };
    Ok(ImageStatusResponse { image: Some(view::image(&image, &Pinned::of(node.settings()))), info })
}

/// `PullImage`: it goes on when its caller leaves, and the next one joins it.
pub(crate) async fn pull(node: Arc<Node>, request: PullImageRequest) -> Result<PullImageResponse> {
    let spec = request.image.unwrap_or_default();
    if node.runtime.config().handler.settings(&spec.runtime_handler).is_none() {
        let handlers: Vec<_> = node.runtime.config().handler.names().collect();
        let expected = format!("a handler of the configuration: {}", handlers.join(", "));
        let value = format!("{:?}", spec.runtime_handler);
        return Err(Failure::invalid("image.runtime_handler", value, expected));
    }
    let image = named(&spec)?;
    let credentials = request.auth.map(|auth| auth::credentials(&auth, &image)).transpose()?.flatten();
    let mut pull = node.runtime.pull_image(PullSpec { credentials, ..PullSpec::new(image) });
    let id = pull.image().await?;
    Ok(PullImageResponse { image_ref: id.0 })
}

/// `RemoveImage`: the image with all of its names, whichever of them was given. One that is not here counts as success.
pub(crate) async fn remove(node: Arc<Node>, request: RemoveImageRequest) -> Result<RemoveImageResponse> {
    if let Some(image) = found(&node, request.image.as_ref()).await? {
        match node.runtime.remove_image(&image.id.0.parse()?).await {
            // Somebody else was faster.
            Ok(_) | Err(Error::NotFound { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(RemoveImageResponse {})
}

/// `ImageFsInfo`
pub(crate) async fn fs_info(node: Arc<Node>, _request: ImageFsInfoRequest) -> Result<ImageFsInfoResponse> {
    file_systems::info(&node.runtime).await
}

async fn listed(node: &Node, filter: Option<ImageFilter>) -> Result<Vec<mainstay_cri_api::Image>> {
    let wanted = filter.and_then(|filter| filter.image).filter(|image| !image.image.is_empty());
    let images = match wanted {
        Some(wanted) => found(node, Some(&wanted)).await?.into_iter().collect(),
        None => node.runtime.images().await?,
    };
    let pinned = Pinned::of(node.settings());
    Ok(images.iter().map(|image| view::image(image, &pinned)).collect())
}

/// The image of a spec, if it is here.
async fn found(node: &Node, spec: Option<&ImageSpec>) -> Result<Option<Image>> {
    let name = named(spec.unwrap_or(&ImageSpec::default()))?;
    match node.runtime.image(&name).await {
        Ok(image) => Ok(Some(image)),
        Err(Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn named(spec: &ImageSpec) -> Result<ImageName> {
    if spec.image.is_empty() {
        return Err(Failure::invalid(
            "image.image",
            "\"\"",
            "the name of an image, or the id of one that is here",
        ));
    }
    Ok(spec.image.parse()?)
}

/// What `crictl inspecti` shows beside the image: its configuration, and the digest of its layers together.
async fn info(node: &Node, image: &Image) -> Result<HashMap<String, String>> {
    let documents = node.runtime.image_documents(&image.id.0.parse()?).await?;
    let parsed = |text: &str| serde_json::from_str::<Value>(text).unwrap_or(Value::Null);
    let info = json!({
        "chainID": documents.chain.unwrap_or_default(),
        "imageSpec": parsed(&documents.configuration),
        "manifest": parsed(&documents.manifest),
        "platform": image.platform,
        "pulledAt": image.pulled_at.to_string(),
        "blobBytes": image.blob_bytes,
        "unpackedBytes": image.unpacked_bytes,
    });
    Ok([("info".to_owned(), info.to_string())].into())
}
