//! The Container Runtime Interface of Kubernetes over a runtime of Mainstay.
