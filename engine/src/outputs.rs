//! Where results must not go.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use bmoe_engine::EngineError;

/// Refuses an output that would overwrite a model.
///
/// # Errors
/// It would.
pub(crate) fn refuse_model(option: &str, path: &Path) -> Result<(), EngineError> {
    let mut start = [0; 4];
    let is_model = path.is_file()
        && File::open(path).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"GGUF";
    if is_model {
        return Err(EngineError::Config(format!(
            "{option} {} is a GGUF model, which would be overwritten; give another file",
            path.display()
        )));
    }
    Ok(())
}

/// Whether two paths name one file, which need not be there.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    let whole = |p: &Path| {
        let folder = p.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."));
        p.canonicalize()
            .or_else(|_| Ok(folder.canonicalize()?.join(p.file_name().unwrap_or_default())))
    };
    match (whole(a), whole(b)) {
        (Ok(a), Ok(b)) => a == b,
        (Err::<_, std::io::Error>(_), _) | (_, Err(_)) => a == b,
    }
}
