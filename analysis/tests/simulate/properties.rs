//! What holds of any trace.
