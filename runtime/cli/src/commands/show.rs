//! `inspect`.

use std::process::ExitCode;

use futures::future::try_join_all;

use crate::arguments::Objects;
use crate::connection::Context;
use crate::failure::Result;
use crate::tree;
use crate::view::ObjectView;

/// `mainstay inspect`: JSON is always a list, however many were asked for.
pub(super) async fn inspect(context: &Context, arguments: Objects) -> Result<ExitCode> {
    let client = context.daemon().await?;
    let objects = try_join_all(arguments.objects.into_iter().map(|object| client.inspect(object))).await?;
    let views: Vec<_> = objects.iter().map(ObjectView::from).collect();
    let text = || {
        // As in `view::document`: there is always a JSON form.
        let values = views.iter().map(|view| serde_json::to_value(view).unwrap_or_default());
        values.map(|value| tree::text(&value)).collect::<Vec<_>>().join("\n")
    };
    super::print(context.format(), text, &views)
}
