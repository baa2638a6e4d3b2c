/** What may be done here by who looks: a button of what would be refused says so instead. */
import { get } from "./api";
import { isFinal } from "./live.svelte";

interface Access {
  role: "view" | "act";
  saved: boolean;
  /** Of a run: the name of its file, and nothing else. */
  program?: { command: string; pid?: number; host?: string; since?: number; user?: string; job?: string };
}

const AGAIN = 2000; // milliseconds

let found = $state.raw<Access | undefined>();

async function look(): Promise<void> {
  try {
    found = await get<Access>("v1/access");
  } catch (problem) {
    if (!isFinal(problem)) window.setTimeout(look, AGAIN);
  }
}

void look();

export const access = {
  /** Whether what is looked at is the file of a run that has ended. */
  get saved() {
    return found?.saved ?? false;
  },
  /** What is looked at. */
  get program() {
    return found?.program;
  },
  /** Whether the program may be asked to do something: stacks, profiles, the end of meshes. */
  get acts() {
    return found?.role === "act" && !found.saved;
  },
  /** Why not. */
  get refusal() {
    if (found === undefined || this.acts) return "";
    if (found.saved) return "This is the file of a run that has ended: nothing of it runs any more.";
    return "The link that let you in is for looking only: this needs one of the role act, which `monarch dashboard` prints.";
  },
};
