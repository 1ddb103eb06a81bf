//! What a command asks for, once it is understood. Data only.

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Intent {
    /// Start a teammate.
    Spawn {
        /// Its name.
        name: String,
        /// Its role.
        role: String,
        /// What it is to do at once, as sentences; empty: it waits.
        task: String,
        /// How freely it may act, where that was said.
        mode: Option<&'static str>,
    },
    /// Decide about a plan.
    Review {
        /// The request.
        request_id: String,
        /// Whether it may be carried out.
        approve: bool,
        /// What to change.
        feedback: Option<String>,
    },
    /// Mail to somebody.
    Send {
        /// To whom.
        to: String,
        /// What.
        text: Text,
    },
    /// Mail to everybody.
    Broadcast {
        /// What.
        text: String,
    },
    /// Look into the own inbox.
    ReadInbox {
        /// Whose mail is asked for; anybody's when absent.
        about: Option<String>,
    },
    /// Who is on the team?
    ListTeam,
    /// End a teammate.
    ShutDown {
        /// Whom.
        name: String,
        /// Why.
        reason: Option<String>,
    },
    /// Make a file.
    WriteFile {
        /// Where.
        path: String,
        /// With what in it.
        content: Content,
    },
    /// Put a line at the end of a file.
    Append {
        /// Which file.
        path: String,
        /// The line.
        line: String,
    },
    /// Replace a text in a file.
    EditFile {
        /// Which file.
        path: String,
        /// What stands there.
        old: String,
        /// What is to stand there.
        new: String,
    },
    /// Show a file.
    ReadFile {
        /// Which.
        path: String,
    },
    /// Is the file there?
    CheckFile {
        /// Which.
        path: String,
    },
    /// What files are there?
    ListFiles {
        /// Below which folder; the workspace when absent.
        folder: Option<String>,
    },
    /// Remove a file.
    RemoveFile {
        /// Which.
        path: String,
    },
    /// Make a folder.
    MakeFolder {
        /// Where.
        path: String,
    },
    /// Copy a file.
    Copy {
        /// From here.
        from: String,
        /// To there.
        to: String,
    },
    /// Give a file another name.
    Move {
        /// From this.
        from: String,
        /// To that.
        to: String,
    },
    /// Run a shell command.
    Run {
        /// The command.
        command: String,
    },
    /// Put a task on the list.
    CreateTask {
        /// What is to be done.
        subject: String,
        /// Tasks that come first.
        after: Vec<String>,
        /// Who is to do it.
        owner: Option<String>,
    },
    /// Something about a task that exists.
    Task {
        /// Its id.
        id: String,
        /// What about it.
        change: TaskChange,
    },
    /// What tasks are there?
    ListTasks,
    /// Say at the end of the turn what came out.
    Report,
    /// Nothing now: a greeting, an introduction, "wait".
    Rest,
    /// What can you do?
    Help,
    /// The command forbids something; it is left undone.
    Refrain(String),
    /// Understood, but nobody can do it; the reason.
    Unable(String),
    /// Not understood; the words.
    Unclear(String),
}

/// What a message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Text {
    /// These words.
    Words(String),
    /// A greeting: nobody said what to write.
    Greeting,
    /// What came out of the work of this turn.
    Outcome,
}

/// What a new file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Content {
    /// Exactly this.
    Literal(String),
    /// Something that fits these words; empty when nobody said what.
    Described(String),
}

/// What happens to a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum TaskChange {
    /// It is shown.
    Show,
    /// The agent takes it.
    Claim,
    /// It is done.
    Complete,
    /// It gets another status, a word of the task list.
    Status(&'static str),
    /// It gets an owner.
    Assign(String),
}
