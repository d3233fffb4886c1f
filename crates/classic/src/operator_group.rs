//! OperatorGroups.
