//! bmoe-synth
