//! Containers that share a shim.

use crate::containerd;

#[tokio::test]
async fn containers_of_a_group_have_one_shim() {
    for annotation in ["io.containerd.runc.v2.group", "io.kubernetes.cri.sandbox-id"] {
        let containerd = containerd!();
        let group = format!("{annotation}=pod");
        let options = ["--annotation", group.as_str()];
        containerd.run_detached(&options, "first", &["sleep", "100000"]).await;
        containerd.run_detached(&options, "second", &["sleep", "100000"]).await;
        containerd.run_detached(&[], "alone", &["sleep", "100000"]).await;
        assert_eq!(containerd.shims().len(), 2, "{annotation}");
        let socket = containerd.socket("second");
        assert_eq!(containerd.socket("first"), socket);
        containerd.end("alone").await;
        containerd.end("first").await;
        let exec = containerd.say(&["task", "exec", "--exec-id", "probe", "second", "echo", "still"]).await;
        assert_eq!((exec.code, exec.out.as_str()), (0, "still\n"), "{}", exec.err);
        containerd.end("second").await;
        containerd.is_bare().await;
        assert!(!socket.exists(), "{socket:?} stays");
    }
}
