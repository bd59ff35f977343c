//! Images: listed, pulled, removed, and the file systems they are on.

use std::sync::Arc;

use mainstay_cri_api::{
    ImageFsInfoRequest, ImageFsInfoResponse, ImageStatusRequest, ImageStatusResponse, ListImagesRequest,
    ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest, RemoveImageResponse,
    StreamImagesRequest, StreamImagesResponse,
};

use crate::failure::{Failure, Result};
use crate::node::Node;
use crate::service::Answers;

/// `ListImages`
pub(crate) async fn list(_node: Arc<Node>, _request: ListImagesRequest) -> Result<ListImagesResponse> {
    Err(Failure::unimplemented("ListImages", "not yet"))
}

/// `StreamImages`
pub(crate) async fn stream(
    _node: Arc<Node>,
    _request: StreamImagesRequest,
) -> Result<Answers<StreamImagesResponse>> {
    Err(Failure::unimplemented("StreamImages", "not yet"))
}

/// `ImageStatus`
pub(crate) async fn status(_node: Arc<Node>, _request: ImageStatusRequest) -> Result<ImageStatusResponse> {
    Err(Failure::unimplemented("ImageStatus", "not yet"))
}

/// `PullImage`
pub(crate) async fn pull(_node: Arc<Node>, _request: PullImageRequest) -> Result<PullImageResponse> {
    Err(Failure::unimplemented("PullImage", "not yet"))
}

/// `RemoveImage`
pub(crate) async fn remove(_node: Arc<Node>, _request: RemoveImageRequest) -> Result<RemoveImageResponse> {
    Err(Failure::unimplemented("RemoveImage", "not yet"))
}

/// `ImageFsInfo`
pub(crate) async fn fs_info(_node: Arc<Node>, _request: ImageFsInfoRequest) -> Result<ImageFsInfoResponse> {
    Err(Failure::unimplemented("ImageFsInfo", "not yet"))
}
