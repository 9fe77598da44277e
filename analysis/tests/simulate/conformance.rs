//! Toy traces worked out by hand.
