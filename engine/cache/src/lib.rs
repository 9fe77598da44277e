//! bmoe-cache
