//! `bmoe-engine completions` and `bmoe-engine man`: what clap knows of the command line.

use bmoe_engine::EngineError;
use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bmoe-engine completions bash > ~/.local/share/bash-completion/completions/bmoe-engine"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// The shell's script.
    pub(crate) fn text(&self) -> String {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "bmoe-engine", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bmoe-engine man > bmoe-engine.1\n  \
    bmoe-engine man generate | man -l -")]
pub(crate) struct Man {
    /// The command whose page is wanted [default: the one of bmoe-engine itself]
    command: Option<String>,
}

impl Man {
    /// The page, in roff.
    pub(crate) fn text(&self) -> Result<String, EngineError> {
        let mut program = Cli::command().disable_help_subcommand(true);
        // Names a command as it is called.
        program.build();
        let page = match &self.command {
            None => Some(&program),
            Some(name) => program.find_subcommand(name).filter(|command| !command.is_hide_set()),
        };
        let Some(page) = page else {
            let known = program.get_subcommands().filter(|command| !command.is_hide_set());
            let known: Vec<_> = known.map(clap::Command::get_name).collect();
            return Err(EngineError::Config(format!(
                "bmoe-engine has no command \"{}\"; expected one of {}",
                self.command.as_deref().unwrap_or_default(),
                known.join(", ")
            )));
        };
        let mut text = Vec::new();
        clap_mangen::Man::new(page.clone()).render(&mut text).map_err(|e| EngineError::Output {
            what: "the manual page".into(),
            message: e.to_string(),
        })?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_completions_know_the_options() {
        let page = |command: Option<&str>| Man { command: command.map(str::to_owned) }.text();
        let program = page(None).unwrap();
        assert!(
            program.contains(".TH bmoe\\-engine") || program.contains(".TH bmoe-engine"),
            "{program}"
        );
        assert!(page(Some("generate")).unwrap().contains("cache\\-mb"));
        let refused = page(Some("generat")).unwrap_err().to_string();
        assert!(
            refused.contains("no command \"generat\"; expected one of generate, session"),
            "{refused}"
        );
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            assert!(Completions { shell }.text().contains("cache-mb"), "{shell}");
        }
    }
}
