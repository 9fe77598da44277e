//! Programs that are asked something in passing: within a time, and for one line.

use std::io::{self, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// What is read of an answer.
const ANSWER_BYTES: u64 = 4096;
/// What is kept of it.
const ANSWER_CHARS: usize = 200;
/// How often a program is looked after.
const TICK: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// The program was killed, since its time was up.
    TimedOut,
    /// The program was killed, since its caller didn't want to know any more.
    Stopped,
}

/// The first line that a program prints, at most 200 printable characters; `None` when it fails, prints
/// nothing or can't be started.
///
/// # Errors
/// It did not end (with everything it had started that holds its output) before it was killed.
pub(super) fn ask(
    command: &mut Command,
    limit: Duration,
    stop: &dyn Fn() -> bool,
) -> Result<Option<String>, NoAnswer> {
    let end = Instant::now() + limit;
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // A group of its own, to kill whatever it may have started along with it.
    let Ok(mut child) = command.process_group(0).spawn() else { return Ok(None) };
    let answer = listen(&mut child);
    let mut status = None;
    let mut text = None;
    while status.is_none() || text.is_none() {
        let no_answer = if stop() {
            Some(NoAnswer::Stopped)
        } else {
            (Instant::now() >= end).then_some(NoAnswer::TimedOut)
        };
        if let Some(no_answer) = no_answer {
            kill(&mut child);
            return Err(no_answer);
        }
        match answer.recv_timeout(TICK) {
            Ok(bytes) => text = Some(bytes),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
        if status.is_none() {
            match child.try_wait() {
                Ok(ended) => status = ended,
                Err(_) => {
                    kill(&mut child);
                    return Ok(None);
                }
            }
        }
    }
    let succeeded = status.is_some_and(|status| status.success());
    Ok(text.filter(|_| succeeded).and_then(|bytes| one_line(&bytes)))
}

/// Takes the head of the output, and the rest away so that the program isn't kept waiting.
fn listen(child: &mut Child) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let stdout = child.stdout.take();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stdout) = stdout {
            // What was read before an error is an answer too.
            let _ = stdout.by_ref().take(ANSWER_BYTES).read_to_end(&mut bytes);
            if sender.send(bytes).is_ok() {
                let _ = io::copy(&mut stdout, &mut io::sink());
            }
        }
    });
    receiver
}

fn kill(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // An error means that the group is gone, which is what was wanted.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

fn one_line(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let printable = |line: &str| -> String {
        line.trim().chars().filter(|c| !c.is_control()).take(ANSWER_CHARS).collect()
    };
    text.lines().map(printable).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(30);

    fn shell(script: &str, limit: Duration, stop: bool) -> Result<Option<String>, NoAnswer> {
        ask(Command::new("sh").args(["-c", script]), limit, &|| stop)
    }

    #[test]
    fn an_answer_is_one_printable_line() {
        let answer = |script: &str| shell(script, LONG, false).unwrap();
        assert_eq!(answer("printf '\\n engine\\0331 \\r\\nmore\\n'").as_deref(), Some("engine1"));
        assert_eq!(answer("printf '%0300d' 7").map(|text| text.len()), Some(200));
        // More than a pipe holds.
        assert_eq!(answer("echo x; head -c 300000 /dev/zero").as_deref(), Some("x"));
        assert_eq!(answer("echo x; exit 1"), None);
        assert_eq!(answer("true"), None);
        assert_eq!(ask(&mut Command::new("/nowhere"), LONG, &|| false), Ok(None));
    }

    #[test]
    fn programs_that_do_not_end_are_killed() {
        let short = Duration::from_millis(50);
        assert_eq!(shell("sleep 100", short, false), Err(NoAnswer::TimedOut));
        // Ended, but for something that holds the output.
        assert_eq!(shell("sleep 100 & echo x", short, false), Err(NoAnswer::TimedOut));
        assert_eq!(shell("sleep 100", LONG, true), Err(NoAnswer::Stopped));
    }
}
