//! bmoe-engine
