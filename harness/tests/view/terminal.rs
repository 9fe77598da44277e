//! What needs a real terminal: `scripts/test-view.sh` runs these in one.

use bmoe::view::terminal::Taken;

/// Ends with the panic: whether the terminal is as it was before can be seen from outside only.
#[test]
#[ignore = "takes the terminal; scripts/test-view.sh runs it in one of its own"]
fn a_panic_gives_the_terminal_back() {
    let mut taken = Taken::take().expect("standard output is a terminal");
    taken.terminal.draw(|frame| frame.render_widget("on the other screen", frame.area())).unwrap();
    panic!("the viewer has panicked on purpose");
}
