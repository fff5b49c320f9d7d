import { mount } from 'svelte';
import App from './App.svelte';
import { router } from './lib/router.svelte';
import { session } from './lib/session.svelte';
import { theme } from './lib/theme.svelte';
import './styles/tokens.css';
import './styles/base.css';
import './styles/parts.css';

theme.start();
router.start();
void session.start();

const target = document.getElementById('app');
if (target) mount(App, { target });
