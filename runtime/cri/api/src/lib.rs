//! The Container Runtime Interface of Kubernetes: messages, server and client.
