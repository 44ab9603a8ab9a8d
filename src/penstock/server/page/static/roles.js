// What the token of the page allows. A button of a command that it does not allow is disabled, with the reason.

const ranks = { read: 1, control: 2, admin: 3 };
let owner = { name: "", role: "read" };

/** Note who uses the page: the answer of /v1/session. */
export function signedIn(who) {
  owner = who;
}

/** Return whether the token has a role, `control` or `admin`. */
export const allows = (role) => (ranks[owner.role] ?? 0) >= ranks[role];

/** Return the attributes of a button or field for something that needs a role. */
export const needs = (role) => (allows(role) ? {} : { disabled: true, title: `the token ${owner.name} has the role ${owner.role}; this needs the role ${role}` });
