const word = (text: string) => (/^[\w.-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** What is typed in a terminal to go on there: the debugger of a program, at a rank of an actor. */
export const attach = (program: number, actor: string, rank: number) => `monarch debug -p ${program} attach ${word(actor)} ${rank}`;
