//! Exec, attach and port-forward over SPDY/3.1 and WebSocket, as kubectl and crictl speak them.
