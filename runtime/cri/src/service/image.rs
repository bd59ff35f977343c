//! `ImageService`: each call to its place.

use mainstay_cri_api::image_service_server::ImageService;
use mainstay_cri_api::{
    ImageFsInfoRequest, ImageFsInfoResponse, ImageStatusRequest, ImageStatusResponse, ListImagesRequest,
    ListImagesResponse, PullImageRequest, PullImageResponse, RemoveImageRequest, RemoveImageResponse,
    StreamImagesRequest, StreamImagesResponse,
};
use tonic::{Request, async_trait};

use super::{Answer, Calls, StreamAnswer, Streaming};
use crate::images;

#[async_trait]
impl ImageService for Calls {
    async fn list_images(&self, request: Request<ListImagesRequest>) -> Answer<ListImagesResponse> {
        self.look("ListImages", images::list, request).await
    }

    type StreamImagesStream = Streaming<StreamImagesResponse>;

    async fn stream_images(
        &self,
        request: Request<StreamImagesRequest>,
    ) -> StreamAnswer<StreamImagesResponse> {
        self.open("StreamImages", images::stream, request).await
    }

    async fn image_status(&self, request: Request<ImageStatusRequest>) -> Answer<ImageStatusResponse> {
        self.look("ImageStatus", images::status, request).await
    }

    async fn pull_image(&self, request: Request<PullImageRequest>) -> Answer<PullImageResponse> {
        self.work("PullImage", images::pull, request).await
    }

    async fn remove_image(&self, request: Request<RemoveImageRequest>) -> Answer<RemoveImageResponse> {
        self.work("RemoveImage", images::remove, request).await
    }

    async fn image_fs_info(&self, request: Request<ImageFsInfoRequest>) -> Answer<ImageFsInfoResponse> {
        self.look("ImageFsInfo", images::fs_info, request).await
    }
}
