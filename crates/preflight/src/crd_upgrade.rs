//! Whether a changed custom resource definition breaks what users have stored.
