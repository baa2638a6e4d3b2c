import { mount } from "svelte";
import App from "./App.svelte";
import "./style.css";

if (location.pathname.endsWith("/login")) history.replaceState(null, "", `./${location.hash}`); // the link is used up
mount(App, { target: document.body });
