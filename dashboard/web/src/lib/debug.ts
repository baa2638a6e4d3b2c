const word = (text: string) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** What is typed in a terminal to go on there: a rank that has stopped is attached, one that runs is to stop first. */
export const debug = (program: number, stopped: boolean, actor: string, rank: number) =>
  `monarch debug ${program} ${stopped ? "attach" : "interrupt"} ${word(actor)} ${rank}`;
