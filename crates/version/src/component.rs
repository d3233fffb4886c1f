/// One of the three numbers of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// The first.
    Major,
    /// The second.
    Minor,
    /// The third.
    Patch,
}
