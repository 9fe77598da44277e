//! The terminal: taken, and given back whatever happens.

use std::io::{self, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{
    DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste, EnableMouseCapture,
};
use ratatui::crossterm::execute;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// A terminal in raw mode, on its other screen, with the mouse. Dropped, it is as it was before.
#[derive(Debug)]
pub struct Taken {
    /// What is drawn on.
    pub terminal: DefaultTerminal,
}

impl Taken {
    /// Takes the terminal of standard output. A panic gives it back before it is told.
    ///
    /// # Errors
    /// It is none, or it can't do what is needed.
    pub fn take() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste);
            before(info);
        }));
        let terminal = ratatui::try_init().inspect_err(|_| ratatui::restore())?;
        // From here on whatever fails drops this.
        let taken = Self { terminal };
        execute!(stdout(), EnableMouseCapture, EnableBracketedPaste)?;
        end_with_terminal();
        Ok(taken)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let _ = execute!(stdout(), DisableMouseCapture, DisableBracketedPaste);
        let _ = self.terminal.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Ends this process when its terminal goes away: reading keys of a terminal that is gone never returns
/// (crossterm asks again and again), so nobody else could. An orderly end gets half a second first.
pub fn end_with_terminal() {
    std::thread::spawn(|| {
        let terminal = stdout();
        // Nothing but a hang-up wakes it.
        let mut watched = [PollFd::new(&terminal, PollFlags::empty())];
        loop {
            match poll(&mut watched, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
                Ok(_) => break,
            }
        }
        std::thread::sleep(Duration::from_millis(500));
        std::process::exit(128 + SIGHUP);
    });
}

/// Signals that ask the viewer to leave.
#[derive(Debug, Clone, Default)]
pub struct Signals(Arc<AtomicUsize>);

impl Signals {
    /// Watches SIGINT, SIGTERM and SIGHUP of this process.
    ///
    /// # Errors
    /// The handlers can't be set.
    pub fn watch() -> io::Result<Self> {
        let signals = Self::default();
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            let flag = Arc::clone(&signals.0);
            signal_hook::flag::register_usize(signal, flag, signal.unsigned_abs() as usize)?;
        }
        Ok(signals)
    }

    /// The signal that came, once.
    #[must_use]
    pub fn take(&self) -> Option<i32> {
        match self.0.swap(0, Ordering::SeqCst) {
            0 => None,
            signal => i32::try_from(signal).ok(),
        }
    }
}
